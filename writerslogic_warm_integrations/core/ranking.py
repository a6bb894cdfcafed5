from warm_integrations.core.ranking import *
